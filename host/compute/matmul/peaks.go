package matmul

// A Peak measures how fast the processor executes an instruction when nothing else is in the way:
// Run repeats a group of independent ones n times.
type Peak struct {
	Instruction string
	Operations  int // multiplications and additions in one repetition
	Run         func(n int)
}

// Peaks lists the instructions of this processor with which some tier multiplies. In builds without
// kernels there are none.
func Peaks() []Peak { return processorPeaks() }
