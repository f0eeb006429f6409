package build

// Functions that are exported for the tests.
var (
	AvailableIn = availableIn
	Decide      = decide
	EstimateOf  = estimate
	NewReport   = newReport
	Remedies    = remedies
)
