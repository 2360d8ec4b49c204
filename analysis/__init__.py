"""From raw records to tables and figures."""
