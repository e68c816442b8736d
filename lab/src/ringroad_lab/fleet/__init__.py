"""Automatic measurement of builds: requests, their sources, and the dispatcher that has them measured."""
