// Forwarder passes frames between two memif interfaces, each queue's frames to the queue of its number, by gomemif: an
// implementation of memif that shares no code with Ringroad's or DPDK's.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/bits"
	"os"
	"sync"
	"time"

	"go.fd.io/govpp/extras/gomemif/memif"
)

// Longest frame, bytes.
const longest = 1 << 16

// Frames that one call passes at most, so that a connection's end never waits for long.
const burst = 64

type side struct {
	port *memif.Interface
	up   bool
}

var (
	// Who uses memory of an interface holds it for reading. Who lets gomemif unmap the memory holds it for writing before.
	lock  sync.RWMutex
	sides [2]side
)

// pass forwards frames of a queue. It returns their number, or -1 once the interface is not connected.
func pass(from, queue int, frame []byte) int {
	lock.RLock()
	defer lock.RUnlock()
	if !sides[from].up {
		return -1
	}
	received, err := sides[from].port.GetRxQueue(queue)
	if err != nil {
		log.Fatalf("receive queue %d: %v", queue, err)
	}
	for passed := 0; passed < burst; passed++ {
		bytes, err := received.ReadPacket(frame)
		if err != nil {
			log.Fatalf("a frame of queue %d: %v", queue, err)
		}
		if bytes == 0 {
			return passed
		}
		if to := &sides[1-from]; to.up {
			sent, err := to.port.GetTxQueue(queue)
			if err != nil {
				log.Fatalf("send queue %d: %v", queue, err)
			}
			// A full ring loses the frame.
			sent.WritePacket(frame[:bytes])
		}
	}
	return burst
}

func poll(from, queue int) {
	frame := make([]byte, longest)
	for passed := 0; passed >= 0; passed = pass(from, queue, frame) {
		if passed == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

func main() {
	path := flag.String("socket", "", "the socket's path")
	server := flag.Bool("server", false, "listen at the socket")
	queues := flag.Uint("queues", 1, "pairs of queues")
	ring := flag.Uint("ring-size", 1024, "descriptors of each ring, a power of two")
	buffer := flag.Uint("buf-size", 2048, "bytes of each buffer")
	flag.Parse()

	socket, err := memif.NewSocket("gomemif", *path)
	if err != nil {
		log.Fatal(err)
	}
	for number := range sides {
		arguments := memif.Arguments{
			Id:          uint32(number),
			IsMaster:    *server,
			Name:        fmt.Sprintf("gomemif%d", number),
			PrivateData: number,
			MemoryConfig: memif.MemoryConfig{
				NumQueuePairs:    uint16(*queues),
				Log2RingSize:     uint8(bits.Len(*ring) - 1),
				PacketBufferSize: uint32(*buffer),
			},
			ConnectedFunc: func(port *memif.Interface) error {
				number := port.GetPrivateData().(int)
				lock.Lock()
				sides[number].up = true
				lock.Unlock()
				for queue := 0; queue < int(port.GetMemoryConfig().NumQueuePairs); queue++ {
					go poll(number, queue)
				}
				fmt.Println("connected", number)
				return nil
			},
			DisconnectedFunc: func(port *memif.Interface) error {
				lock.Lock()
				sides[port.GetPrivateData().(int)].up = false
				lock.Unlock()
				if !*server {
					os.Exit(0)
				}
				return nil
			},
		}
		if sides[number].port, err = socket.NewInterface(&arguments); err != nil {
			log.Fatal(err)
		}
		if !*server {
			if err := sides[number].port.RequestConnection(); err != nil {
				log.Fatal(err)
			}
		}
	}
	failures := make(chan error)
	socket.StartPolling(failures)
	for failure := range failures {
		fmt.Println(failure)
	}
}
