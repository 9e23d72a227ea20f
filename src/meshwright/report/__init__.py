"""Report: one page about what `bench` measured, in words, in a table and in charts, and a PNG of every chart.

`write_report` is what others use. `study` puts the rows of one or several benches side by side, `words` says what they
mean, `tables` holds the charts' data and `charts` their definitions; `figures` turns them into Vega-Lite and PNGs,
`results_table`, `page` and `shell` into HTML; `bundle` has the JavaScript that draws. `rehearsed` draws a rehearsed
rank's memory. Altair is imported when a report is made.
"""

from meshwright.report.write import Report, ReportError, write_report

__all__ = ["Report", "ReportError", "write_report"]
