module gomesh

go 1.26

require (
	google.golang.org/protobuf v1.36.11
	istio.io/api v1.31.1
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20251213004720-97cd9d5aeac2 // indirect
)
