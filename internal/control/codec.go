package control

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// rawCodec hands gRPC bytes as they are; what they mean is wire.go's business.
type rawCodec struct{}

// Name becomes the content-subtype: application/grpc+tandem.
func (rawCodec) Name() string { return "tandem" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("control codec: cannot marshal %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal copies, because gRPC reuses its buffers.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("control codec: cannot unmarshal into %T", v)
	}
	*b = data.Materialize()
	return nil
}
