"""Methods of measurement: each turns trials into one measurement. A file for each."""
