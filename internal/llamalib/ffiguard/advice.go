package ffiguard

// Advice is what a user without libffi is told.
const Advice = "libffi.so.8 is not on this machine, and llama.cpp cannot be called without it. " +
	"Install it: Debian and Ubuntu `apt install libffi8`, Fedora and RHEL `dnf install libffi`, Arch `pacman -S libffi`. " +
	"If your loader does find it, set TANDEM_SKIP_LIBFFI_CHECK=1."
