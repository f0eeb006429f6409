package matmul

// A Peak measures the peak rate of an instruction: Run repeats a group of independent ones n times.
type Peak struct {
	Instruction string
	Operations  int // multiplications and additions in one repetition
	Run         func(n int)
}

// Peaks lists the multiplying instructions that tiers of this processor use. It is empty in builds
// without kernels.
func Peaks() []Peak { return processorPeaks() }
