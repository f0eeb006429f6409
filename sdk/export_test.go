package sdk

// For the tests of package sdk_test.
var (
	Servers   = servers
	NewLogger = newLogger
	ByHand    = byHand

	ToQuantizerProgram = toQuantizerProgram
	ToOptimizerProgram = toOptimizerProgram
)
