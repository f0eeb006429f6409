package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/badfiles"
	"github.com/cage-qat/cage/internal/plaintoml"
)

const leastBad = 25

// overridesOf are those of a case of testdata/bad, one a line of the member "set" ("\n"
// for a line break).
func overridesOf(c badfiles.Case) []string {
	text := c.File("set")
	if text == nil {
		return nil
	}
	var overrides []string
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		overrides = append(overrides, strings.ReplaceAll(line, `\n`, "\n"))
	}
	return overrides
}

func TestBadInputs(t *testing.T) {
	badfiles.Test(t, leastBad, func(t *testing.T, c badfiles.Case) error {
		_, err := Parse("run.toml", c.File("run.toml"), overridesOf(c))
		var e *plaintoml.Error
		if err != nil && (!errors.As(err, &e) || e.Msg == "") {
			t.Errorf("no *plaintoml.Error in %T", err)
		}
		return err
	})
}
