//go:build !goexperiment.simd

package loops

// The loops of a build without vector instructions are the plain ones.
var (
	add, sub, mul, div                 = plainAdd, plainSub, plainMul, plainDiv
	addS, fromS, mulS, divS, intoS     = plainAddS, plainFromS, plainMulS, plainDivS, plainIntoS
	mulMulS, linAdd, linSub, linMul    = plainMulMulS, plainLinAdd, plainLinSub, plainLinMul
	mulMul, intoAddS, siluSlope        = plainMulMul, plainIntoAddS, plainSiLUSlope
	sqrtLin, clampAll, choose          = plainSqrtLin, plainClamp, plainSelect
	expLin                             = plainExpLin
	chooseS, chooseSS, fill            = plainSelectS, plainSelectSS, plainFill
	sChoose, roundSmall                = plainSSelect, plainRoundSmall
	unaryAll, binaryAll                = plainUnary, plainBinary
	binaryAllS, sBinaryAll             = plainBinaryS, plainSBinary
	rotateRuns, butterfly, butterflies = plainRotateRuns, plainButterfly, plainButterflies
	sum, sumMul, sumDiff               = plainSum, plainSumMul, plainSumDiff
	groupSum, groupSumMul              = plainGroupSum, plainGroupSumMul
	groupExtreme, groupLargest         = plainGroupExtreme, plainGroupLargest
)
