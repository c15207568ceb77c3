"""Block devices, from udev and sysfs."""
