"""The Whitney training API as this project speaks it: types, routes, client. Knows no Prefect and no algorithm."""
