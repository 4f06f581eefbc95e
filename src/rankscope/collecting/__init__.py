"""Run directories of one job that lie on its nodes' own disks, brought together in one."""
