"""Histories of sends and polls, judged by `minibroker check`: were records lost, repeated, or seen too early?"""
