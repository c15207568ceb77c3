"""The course of an update as a page: bars on one axis over its boots, and the same update with a drain and a reboot."""
