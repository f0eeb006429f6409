package sdktest

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
)

// Quantizer runs all checks on q, each as a subtest.
func Quantizer(t *testing.T, q sdk.Quantizer, list ...Option) {
	t.Helper()
	newQuantizerSession(NewQuantizer(q), list).test(t)
}

// Optimizer runs all checks on o, each as a subtest.
func Optimizer(t *testing.T, o sdk.Optimizer, list ...Option) {
	t.Helper()
	newOptimizerSession(NewOptimizer(o), list).test(t)
}

// test runs the steps as subtests, and logs the measures.
func (s *session) test(t *testing.T) {
	for _, step := range s.steps {
		t.Run(strings.ReplaceAll(step.name, " ", "-"), func(t *testing.T) {
			c := step.do()
			if c.Status == Fail {
				t.Errorf("%d of %d; asked: %s", c.Failed, c.Tried, c.Asks)
			}
			for _, f := range c.Failures {
				t.Error(f)
			}
			if notes := strings.Join(c.Notes, "; "); c.Status == Skip {
				t.Skip(notes)
			} else if notes != "" {
				t.Log(notes)
			}
		})
	}
	if s.measure == nil {
		return
	}
	s.measure(&s.report)
	for _, m := range s.report.Measures {
		t.Logf("%s: %s %s", m.Name, m.Value, m.Unit)
	}
}
