package engine

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
)

// fakeBuilder is a builder whose main function is made of other fields.
type fakeBuilder struct {
	compute.Builder
	main compute.Function
}

func (b fakeBuilder) Main() compute.Function { return b.main }

type (
	otherFunction struct{ compute.Function }
	noInputs      struct {
		compute.Function
		fn *struct{ Outputs []*int }
	}
	noAttributes struct {
		compute.Function
		fn *struct {
			Inputs []*struct{ Attributes []string }
		}
	}
	asKnown struct {
		compute.Function
		fn *struct {
			Inputs []*struct{ Attributes map[string]any }
		}
	}
)

// TestHiddenFields: what is not as it is known is an error that names it.
func TestHiddenFields(t *testing.T) {
	known := asKnown{fn: new(struct {
		Inputs []*struct{ Attributes map[string]any }
	})}
	for _, c := range []struct {
		main compute.Function
		want string
	}{
		{otherFunction{}, "engine.otherFunction has no function fn"},
		{noInputs{}, "has no function fn"}, // it is nil
		{noInputs{fn: new(struct{ Outputs []*int })}, "has no list of Inputs"},
		{noAttributes{fn: new(struct {
			Inputs []*struct{ Attributes []string }
		})}, "has no Attributes of type map[string]interface"},
		{known, ""},
	} {
		_, err := mainInputs(fakeBuilder{main: c.main})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%T: %v, want it to say %q", c.main, err, c.want)
		}
	}
	if _, err := hiddenMaps(&struct{ scalars []int }{}, graphCaches); err == nil || !strings.Contains(err.Error(), "has no map scalars") {
		t.Errorf("a list in the place of a map: %v", err)
	}
}
