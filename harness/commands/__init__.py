"""One module per subcommand; each has `run(argv) -> exit code`."""
