"""What the controller keeps on its disk: database, backups, tokens, the audit log."""
