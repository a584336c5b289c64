"""The Lumpscope service: messages and stubs of lumpscope.v1.

One connection is served by one processor on either side. With many calls in flight, several channels carry more, each
with the option ("grpc.use_local_subchannel_pool", 1): without it the channels of a process share one connection.
"""
