"""Sensors: arrays, tables and files of readings."""
