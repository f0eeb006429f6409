package loops

var (
	fromBFloat16, toBFloat16 = plainFromBFloat16, plainToBFloat16
	toInt8                   = plainToInt8
	fromBools, toBools       = plainFromBools, plainToBools
)
