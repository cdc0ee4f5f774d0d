"""Hostile programs as data, and what each one must not achieve: `posttrain check sandbox NAME` tries them all."""
