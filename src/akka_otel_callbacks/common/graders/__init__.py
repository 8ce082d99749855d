"""What scores rollouts: rules and judges whose every call is timed, and whose failures and tokens are counted."""
