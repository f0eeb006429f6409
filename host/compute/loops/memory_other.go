//go:build !amd64 || !goexperiment.simd

package loops

var (
	fromBFloat16, toBFloat16 = plainFromBFloat16, plainToBFloat16
	roundToBFloat16          = plainRoundToBFloat16
	fromBools, toBools       = plainFromBools, plainToBools
	toInt8                   = plainToInt8
)
