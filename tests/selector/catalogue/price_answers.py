"""Answers in the form of the providers' public price APIs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

AWS_HEADER = (
    "SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,Unit,PricePerUnit,Currency,Instance Type,"
    "Instance Family,vCPU,Physical Processor,Memory,Tenancy,Operating System,GPU,CapacityStatus,Pre Installed S/W"
)
AWS_COLUMNS = AWS_HEADER.split(",")


def aws_row(name: str, price: str, **changes: str) -> dict[str, str]:
    plain = {
        "SKU": "ABC", "OfferTermCode": "JRTCKXETXF", "RateCode": "ABC.JRTCKXETXF.6YS6EN2CT7", "TermType": "OnDemand",
        "PriceDescription": f"${price} per On Demand Linux {name}, Instance Hour", "EffectiveDate": "2026-11-01",
        "Unit": "Hrs", "PricePerUnit": price, "Currency": "USD", "Instance Type": name,
        "Instance Family": "General purpose", "vCPU": "2", "Physical Processor": "Intel Xeon", "Memory": "8 GiB",
        "Tenancy": "Shared", "Operating System": "Linux", "GPU": "", "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
    }  # fmt: skip
    return {**plain, **{name.replace("_", " "): value for name, value in changes.items()}}


def aws_csv(*rows: dict[str, str], columns: list[str] = AWS_COLUMNS) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["FormatVersion", "v1.0"])
    writer.writerow(["Disclaimer", "This pricing list is for informational purposes only. All prices are subject, ..."])
    writer.writerow(["Publication Date", "2026-11-20T20:00:00Z"])
    writer.writerow(["Version", "20261120200000"])
    writer.writerow(["OfferCode", "AmazonEC2"])
    writer.writerow(columns)
    for row in rows:
        writer.writerow([row[column] for column in columns])
    return out.getvalue()


AWS_INDEX = json.dumps(
    {
        "formatVersion": "v1.0",
        "disclaimer": "...",
        "publicationDate": "2026-11-20T20:00:00Z",
        "regions": {
            region: {
                "regionCode": region,
                "currentVersionUrl": f"/offers/v1.0/aws/AmazonEC2/20261120200000/{region}/index.json",
            }
            for region in ("us-east-1", "sa-east-1")
        },
    }
)


def aws_serve(endpoint: Any, answer: Any, body: str, **kind: Any) -> None:
    def script(path: str, query: dict[str, str]) -> Any:
        return answer(AWS_INDEX) if path.endswith("region_index.json") else answer(body, **kind)

    endpoint.script = script


def azure_item(name: str, price: float, **changes: Any) -> dict[str, Any]:
    return {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price,
        "armRegionName": "eastus", "location": "US East", "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterId": "m", "meterName": name.removeprefix("Standard_").replace("_", " "), "productId": "p", "skuId": "s",
        "productName": "Virtual Machines Dsv5 Series", "skuName": name.removeprefix("Standard_").replace("_", " "),
        "serviceName": "Virtual Machines", "serviceId": "DZH313Z7MMC8", "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour", "type": "Consumption", "isPrimaryMeterRegion": True, "armSkuName": name,
        **changes,
    }  # fmt: skip


def azure_page(items: list[dict[str, Any]], following: str | None = None) -> str:
    return json.dumps(
        {
            "BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail",
            "Items": items, "NextPageLink": following, "Count": len(items),
        }
    )  # fmt: skip


def gcp_sku(description: str, nanos: int, *, usage: str = "OnDemand", **changes: Any) -> dict[str, Any]:
    return {
        "name": "services/6F81-5844-456A/skus/0001", "skuId": "0001", "description": description,
        "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": "CPU",
                     "usageType": usage},
        "serviceRegions": ["us-central1", "asia-east1"],
        "pricingInfo": [{
            "summary": "", "currencyConversionRate": 1, "effectiveTime": "2026-11-01T00:00:00Z",
            "pricingExpression": {"usageUnit": "h", "displayQuantity": 1, "tieredRates": [
                {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}]},
        }],
        "serviceProviderName": "Google", **changes,
    }  # fmt: skip


def gcp_page(skus: list[dict[str, Any]], token: str = "") -> str:
    return json.dumps({"skus": skus, "nextPageToken": token})
