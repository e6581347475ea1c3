package terminal

import (
	"context"
	"io"
)

// ReadLine reads a line without its end, and nothing behind it, which is for others to read. If the context ends first, the error is its
// cause; what is typed after that is lost.
func ReadLine(ctx context.Context, in io.Reader) (string, error) {
	var line []byte
	ended := make(chan error, 1)
	go func() {
		one := make([]byte, 1)
		for {
			n, err := in.Read(one)
			if n > 0 && one[0] == '\n' {
				ended <- nil
				return
			}
			line = append(line, one[:n]...)
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		return string(line), err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
