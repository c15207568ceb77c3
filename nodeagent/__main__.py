from nodeagent.cli.main import entry

entry()
