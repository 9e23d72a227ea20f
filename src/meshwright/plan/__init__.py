"""Plans: the search over layouts, its defaults and advice, and how the predictions compare with published runs.

`search.make_plan` answers: `space` lays out every layout as columns, `scan` decides and prices them (`states` first),
`rank` orders the best with the times that `shortlist` simulates, `runtimes` tells what runs them, `reasons`, `warnings`
and `advice` put it in words, `remedies` tries what would make a job fit; `defaults` chooses what a job leaves open.
`history` reads tables of published runs and finds the ones nearest to a plan, `evidence` prices those.
"""
