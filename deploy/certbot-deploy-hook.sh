#!/bin/sh
# certbot's deploy hook: gives the gateway's user a copy of the certificate and its key, and has the gateway read them.
# Let's Encrypt's own files are root's alone. Install it once, certbot then runs it after each renewal:
#   install -m 755 deploy/certbot-deploy-hook.sh /etc/letsencrypt/renewal-hooks/deploy/voicegate
set -eu

user=${GATEWAY_USER:-voicegate}
folder=${TLS_DIR:-/etc/voicegate/tls}

install -d -m 700 -o "$user" "$folder"
# Whole or not at all: both files appear under their names when both are there.
install -m 600 -o "$user" "${RENEWED_LINEAGE:?certbot sets it}/fullchain.pem" "$folder/cert.pem.new"
install -m 600 -o "$user" "$RENEWED_LINEAGE/privkey.pem" "$folder/key.pem.new"
mv "$folder/key.pem.new" "$folder/key.pem"
mv "$folder/cert.pem.new" "$folder/cert.pem"
# Nothing to read again before the first start.
! systemctl is-active --quiet voicegate || systemctl reload voicegate
