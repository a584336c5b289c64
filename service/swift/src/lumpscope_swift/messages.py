"""The messages of lumpscope.v1, made from the protocol's descriptors.

Code that protoc generates works only with the runtime of protobuf it was generated for, and the distributions have
several; descriptors work with all of them.
"""

from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()


def _load():
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files(__package__).joinpath("lumpscope.v1.binpb").read_bytes())
    for file in files.file:
        _POOL.Add(file)


def _declare_errors():
    """google.rpc.Status with its details and google.rpc.ErrorInfo, as far as they are read here."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="errors.proto", package="lumpscope.v1", syntax="proto3")
    for name, fields in {
        "ErrorStatus": [("details", 3, field.TYPE_MESSAGE, ".lumpscope.v1.ErrorDetail")],
        "ErrorDetail": [("type_url", 1, field.TYPE_STRING, ""), ("value", 2, field.TYPE_BYTES, "")],
        "ErrorInfo": [("reason", 1, field.TYPE_STRING, "")],
    }.items():
        message = file.message_type.add(name=name)
        for text, number, kind, of in fields:
            label = field.LABEL_REPEATED if of else field.LABEL_OPTIONAL
            message.field.add(name=text, number=number, type=kind, label=label, type_name=of or None)
    _POOL.Add(file)


def _message(name):
    found = _POOL.FindMessageTypeByName("lumpscope.v1." + name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(_POOL).GetPrototype(found)


_load()
_declare_errors()

PutRequest = _message("PutRequest")
PutResponse = _message("PutResponse")
PutSmallRequest = _message("PutSmallRequest")
PutSmallResponse = _message("PutSmallResponse")
GetRequest = _message("GetRequest")
GetResponse = _message("GetResponse")
GetSmallRequest = _message("GetSmallRequest")
GetSmallResponse = _message("GetSmallResponse")
DeleteManyRequest = _message("DeleteManyRequest")
DeleteManyResponse = _message("DeleteManyResponse")
DeleteRangeRequest = _message("DeleteRangeRequest")
DeleteRangeResponse = _message("DeleteRangeResponse")
ListRequest = _message("ListRequest")
ListResponse = _message("ListResponse")
UsageRequest = _message("UsageRequest")
UsageResponse = _message("UsageResponse")
ListStoresRequest = _message("ListStoresRequest")
ListStoresResponse = _message("ListStoresResponse")
_ErrorStatus = _message("ErrorStatus")
_ErrorInfo = _message("ErrorInfo")

# Durability, Placement, PutCondition, StoreState.
SYNCED, JOURNALED = 1, 2
DATA, EMBEDDED = 1, 2
IF_ABSENT = 2
SERVING, DEGRADED = 1, 5


def reason(details):
    """The reason in an encoded google.rpc.Status; empty: there is none."""
    status = _ErrorStatus()
    status.ParseFromString(details)
    for detail in status.details:
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            info = _ErrorInfo()
            info.ParseFromString(detail.value)
            return info.reason
    return ""
