package llamalib

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/llamalib/ffiguard"
)

// checkFFI returns nil if libffi can be loaded, as the binding needs at run time.
func checkFFI() error {
	if ffiguard.Present() {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoLibFFI, ffiguard.Advice)
}
