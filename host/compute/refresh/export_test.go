package refresh

import (
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Split returns the two parts of a refresh program.
func Split(o spec.Optimizer) (background, apply *program.Program, err error) {
	o.Due.Every = 2
	s, err := splitDelayed(o, 1)
	if err != nil {
		return nil, nil, err
	}
	return s.background, s.apply, nil
}
