package sdktest

import "github.com/cage-qat/cage/sdk"

// CheckGoldenQuantizer runs the check of a golden file alone.
func CheckGoldenQuantizer(q sdk.Quantizer, file []byte) Check {
	return last(newQuantizerRun(NewQuantizer(q), []Option{Golden(file)}))
}

// CheckGoldenOptimizer runs the check of a golden file alone.
func CheckGoldenOptimizer(o sdk.Optimizer, file []byte) Check {
	return last(newOptimizerRun(NewOptimizer(o), []Option{Golden(file)}))
}

func last(s *session) Check { return s.steps[len(s.steps)-1].do() }
