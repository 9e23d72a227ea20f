"""Report: charts and pages of what `bench` measured."""
