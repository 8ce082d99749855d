"""What `deploy/` holds: dashboards and alert rules, written once in the registry's names and for each dialect anew."""
