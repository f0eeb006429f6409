package lower

// LowerPlain is Lower as for a backend other than the Go backend.
var LowerPlain = lowerFor
