"""Results for people and for files: tables, plots, one HTML page. Nothing here changes a number."""
