"""`streamoe-coord init`: a cluster's authority, and this coordinator's certificate."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from streamoe_engine.errors import UsageError

from .. import cluster_options, options
from ..edge import SCHEMA, print_json, reported


def init(*, force: cluster_options.Force = False, as_json: options.AsJson = False) -> None:
    """Make a cluster: the key that admits nodes, and this coordinator's own certificate."""
    with reported(as_json):
        from streamoe_node.security.authority import Authority, Member, cluster_hash
        from streamoe_node.security.folder import cluster_folder, has_authority, save_authority, save_credentials

        folder = cluster_folder()
        if has_authority(folder) and not force:
            raise UsageError(
                f"there is a cluster in {folder} already",
                "use it: streamoe-coord pair HOST:PORT; or make another with --force, and pair every node again",
            )
        now = datetime.now(UTC)
        authority = Authority.create(secrets.token_hex(4), now)
        save_authority(folder, authority)
        save_credentials(folder, authority.issue(Member("coordinator", secrets.token_hex(8)), now))
        cluster = cluster_hash(authority.certificate_pem)
        if as_json:
            print_json({"schema": SCHEMA, "folder": str(folder), "cluster": cluster})
        else:
            print(f"cluster {cluster} is in {folder}; whoever has this folder can admit nodes")
            print("next, on each node: streamoe-node pair")
