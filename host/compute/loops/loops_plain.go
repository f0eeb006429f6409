//go:build !goexperiment.simd

package loops

// In builds without vector instructions the vectorized loops compute no elements.

func unary(Op, []float32, []float32) int                              { return 0 }
func binary(Op, []float32, []float32, []float32) int                  { return 0 }
func binaryS(Op, []float32, []float32, float32) int                   { return 0 }
func sBinary(Op, []float32, float32, []float32) int                   { return 0 }
func mulMulS(_, _, _ []float32, _ float32) int                        { return 0 }
func mulMul(_, _, _, _ []float32) int                                 { return 0 }
func intoAddS(_, _ []float32, _, _ float32) int                       { return 0 }
func siluSlope(_, _, _ []float32) int                                 { return 0 }
func linAdd(_, _ []float32, _ float32, _ []float32, _ float32) int    { return 0 }
func linMul(_, _ []float32, _ float32, _, _ []float32, _ float32) int { return 0 }
func addSquares(_, _ []float32, _ float32) int                        { return 0 }
func sqrtLin(_, _ []float32, _, _ float32) int                        { return 0 }
func expLin(_, _ []float32, _, _ float32) int                         { return 0 }
func clamp(_, _ []float32, _, _ float32) int                          { return 0 }
func choose(_, _, _ []float32, _ float32, _ []float32, _ float32) int { return 0 }
func roundMulS(_, _ []float32, _ float32) int                         { return 0 }
func near(_, _, _ []float32, _ float32) int                           { return 0 }
func fill(_ []float32, _ float32) int                                 { return 0 }
func butterflies(_, _, _, _ []float32) int                            { return 0 }
func butterfly(_, _ []float32) int                                    { return 0 }
func rope(_, _, _, _ []float32, _ bool) int                           { return 0 }
func roundToBFloat16(_, _ []float32) int                              { return 0 }
func sum(_ *Lanes, _ []float32) int                                   { return 0 }
func sumMul(_ *Lanes, _, _ []float32) int                             { return 0 }
func maxColumns(_, _ []float32) int                                   { return 0 }
func expColumns(_ []float32, _ float32, _, _ []float32, _ Form) int   { return 0 }
func expRows(_, _ []float32, _ float32, _, _ []float32, _ Form) bool  { return false }
