module gomatch

go 1.22
