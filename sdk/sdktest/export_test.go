package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// CheckGoldenQuantizer runs only the check of values.
func CheckGoldenQuantizer(q sdk.Quantizer, v Values, list ...Option) Check {
	return last(newQuantizerRun(NewQuantizer(q), append(list, Golden(v))))
}

// CheckGoldenOptimizer runs only the check of values.
func CheckGoldenOptimizer(o sdk.Optimizer, v Values, list ...Option) Check {
	return last(newOptimizerRun(NewOptimizer(o), append(list, Golden(v))))
}

func last(s *session) Check { return s.do(s.checks[len(s.checks)-1]) }

// SomeOfQuantizer runs only the named checks; without names, all of them.
func SomeOfQuantizer(q sdk.Quantizer, names []string, list ...Option) Report {
	return some(newQuantizerRun(NewQuantizer(q), list), names)
}

// SomeOfOptimizer runs only the named checks, after the check of the parameters, which finds the
// settings that diverge.
func SomeOfOptimizer(o sdk.Optimizer, names []string, list ...Option) Report {
	if len(names) > 0 {
		names = append([]string{"parameters"}, names...)
	}
	return some(newOptimizerRun(NewOptimizer(o), list), names)
}

func some(s *session, names []string) Report {
	if len(names) > 0 {
		s.checks = slices.DeleteFunc(s.checks,
			func(c check) bool { return !slices.Contains(names, c.name) })
	}
	return s.all()
}

// Claim adds claims to those of the description.
func Claim(list ...sdk.Claim) Option { return func(o *options) { o.claims = list } }
