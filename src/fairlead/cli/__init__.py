"""The command line: one thin file per command group. Heavy modules are imported inside commands, so help is instant."""
