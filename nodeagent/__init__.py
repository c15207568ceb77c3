"""nodeagent: one daemon per host that turns a MachineConfig into the state of that host.

Rooms, from the inside out: ``core`` (pure data and decisions), ``domains`` (what each area of the configuration
needs), ``host`` (adapters to this machine), ``agent`` (the daemon), ``cli``.
"""

__version__ = "0.1.0"
