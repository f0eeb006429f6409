package sdk

import pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"

// For the tests of package sdk_test.
var (
	Servers   = servers
	NewLogger = newLogger
	ByHand    = byHand

	DescribeResponse = describeResponse
)

// NewQuantizerServer returns the service of a quantizer, without a connection.
func NewQuantizerServer(q Quantizer) pb.QuantizerServer { return &quantizerServer{q: q} }
