"""A self-hosted streaming voice gateway. What lies beside this file are links to the repository's folders."""
