"""Start-up hook placeholder; replaced by the front door."""
