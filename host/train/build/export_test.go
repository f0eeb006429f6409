package build

// What tests of the package call.
var (
	AvailableIn    = availableIn
	CheckHost      = checkHost
	CompiledReport = compiledReport
	Decide         = decide
	EstimateOf     = estimate
)
