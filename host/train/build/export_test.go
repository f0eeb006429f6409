package build

// What tests of the package call.
var (
	AvailableIn = availableIn
	Decide      = decide
	EstimateOf  = estimate
	NewReport   = newReport
	Remedies    = remedies
)
