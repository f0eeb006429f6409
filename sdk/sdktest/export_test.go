package sdktest

import "github.com/cage-qat/cage/sdk"

// CheckGoldenQuantizer runs the check of values alone.
func CheckGoldenQuantizer(q sdk.Quantizer, v Values) Check {
	return last(newQuantizerRun(NewQuantizer(q), []Option{Golden(v)}))
}

// CheckGoldenOptimizer runs the check of values alone.
func CheckGoldenOptimizer(o sdk.Optimizer, v Values) Check {
	return last(newOptimizerRun(NewOptimizer(o), []Option{Golden(v)}))
}

func last(s *session) Check { return s.steps[len(s.steps)-1].do() }
